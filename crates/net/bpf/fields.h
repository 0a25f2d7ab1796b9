// Values that the programs get before they are loaded, one a line: offsets in structures of the running kernel,
// which the loader looks up in the kernel's own types.
FIELD(txq_dev, netdev_queue.dev)
FIELD(dev_ifindex, net_device.ifindex)
FIELD(dev_net, net_device.nd_net.net)
FIELD(net_inum, net.ns.inum)
FIELD(qdisc_backlog, Qdisc.qstats.backlog)
FIELD(skb_mark, sk_buff.mark)
FIELD(skb_len, sk_buff.len)
