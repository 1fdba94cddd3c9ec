"""What a plan is and what a step did: reports, drawings, traces, memory traffic, dumps.

In: plans, measured times. Out: texts, tables and pictures. Nothing here changes what is run.
"""
