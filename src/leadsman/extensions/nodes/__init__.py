"""Several machines that share one app: a pair, of which one acts, or a cluster, which divides the devices."""
