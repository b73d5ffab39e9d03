-- flags: allow-oom
-- needs: lane_marks
-- wake_queues shows the queues by which the scheduler of wakes plans.
-- Reply: lanes (list of lane and lane_mark; the best 100), waiters (requests that wait for a lease, at most 200)
return named{ lanes = lane_marks(), waiters = waiting_requests() }
