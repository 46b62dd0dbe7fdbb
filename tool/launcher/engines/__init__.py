# SPDX-License-Identifier: BSD-3-Clause
"""What starts the processes of a job, and where: mpirun, ssh, Slurm, Kubernetes, or something else (-m)."""
