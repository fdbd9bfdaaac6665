-- Since when a conversation goes on as the member of an earlier one (/clear) without having been told which turn it holds, on the clock
-- that measures leases. NULL once a hook told it, or the turn was released.
ALTER TABLE sessions ADD COLUMN untold_since TEXT;
