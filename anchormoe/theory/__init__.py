"""The paper's theory, tested by simulation: problems of known smoothness, fixed partitions, trained networks.

Arm 1 is what the theorems are about: a partition of unity that is fixed before the data are seen, experts of fixed
capacity, least squares. Arm 2 is the network that the project trains, whose windows and router are learnt. No table or
verdict mixes the two.
"""
