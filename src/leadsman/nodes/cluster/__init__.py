"""Divides devices among the nodes of a cluster. Leases say which node has which of them; see `leadsman.nodes.lease`."""
