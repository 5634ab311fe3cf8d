{{ config(materialized='table') }}

select * from {{ ref('plain') }}
union all
select * from {{ this }}
