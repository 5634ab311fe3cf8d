{{ config(materialized='table', post_hook='optimize {{ this }}') }}

select * from {{ ref('plain') }}
