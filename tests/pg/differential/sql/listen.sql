LISTEN here

NOTIFY here

NOTIFY here, 'a payload'

SELECT pg_notify('here', 'from a function')

SELECT pg_notify('nobody_listens', 'x')

BEGIN

NOTIFY here, 'one'

NOTIFY here, 'one'

NOTIFY here, 'two'

SELECT 1

COMMIT

BEGIN

NOTIFY here, 'undone'

ROLLBACK

SELECT pg_listening_channels()

LISTEN "Mixed Case"

NOTIFY "Mixed Case", 'quoted'

UNLISTEN here

NOTIFY here, 'unheard'

UNLISTEN *

SELECT pg_listening_channels()

SELECT pg_notify('', 'x')

SELECT pg_notify('here', repeat('x', 8000))

DO $$ BEGIN PERFORM pg_notify('here', 'from a block'); END $$
