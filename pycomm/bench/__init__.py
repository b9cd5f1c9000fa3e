"""`pycomm bench`: time every collective in the manner of nccl-tests, and count wrong results while at it."""
