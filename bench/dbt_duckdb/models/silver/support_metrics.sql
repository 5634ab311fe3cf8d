SELECT tickets.*, date_diff('second', created_at, first_response_at) / 3600.0::DOUBLE AS response_time_hours,
       date_diff('second', created_at, resolved_at) / 3600.0::DOUBLE AS resolution_time_hours,
       date_diff('second', created_at, first_response_at) <= 3600 * response_hours AS meets_response_sla,
       date_diff('second', created_at, resolved_at) <= 3600 * resolution_hours AS meets_resolution_sla
FROM {{ ref('support_tickets') }} AS tickets
LEFT JOIN (VALUES ('critical', 1, 4), ('high', 4, 24), ('medium', 8, 72), ('low', 24, 168))
       AS sla (priority, response_hours, resolution_hours) ON tickets.priority = sla.priority
{{ unseen('ingested_at', 'ingested_at') }}
