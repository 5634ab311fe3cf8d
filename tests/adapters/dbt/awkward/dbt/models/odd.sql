{{ config(materialized='odd') }}

select * from {{ ref('plain') }}
