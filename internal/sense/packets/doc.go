// Package packets reads captures of packets (pcap, pcapng) and cuts the requests
// of their TCP connections, with the ledger of each as far as packets tell.
//
// In: a file. Out: observe.Request, one by one, and an observe.Observation that
// holds their endpoints and says of everything else that it was not looked at.
//
// A capture shows what passes one place. The round trip from there to the server
// and back is taken out of the server's time and added to the network's. When the
// application reads is not to be seen: recv_wait and accept_wait are part of
// server. Which end serves is known by the SYN, or, where the capture began later,
// by which end has more peers.
package packets
