"""Measuring the planner's figures on the running job: probes, the fit, and a look at how well it predicts."""
