package shell

import "testing"

func TestReads(t *testing.T) {
	for line, want := range map[string]bool{
		"ss -ltn":                             true,
		"nsenter --net=/proc/4/ns/net ss -tn": true,
		"nsenter --net=/proc/4/ns/net sysctl net.core.somaxconn":         true,
		"timeout 5 strace -f -p 4":                                       true,
		"ip netns exec edge nft -a list chain inet fw in":                true,
		"runuser -u postgres -- psql -c 'SELECT 1'":                      true,
		"systemctl list-timers; ls /etc/cron.d":                          true,
		"iptables-nft -t filter -L INPUT -n":                             true,
		"ethtool eth0":                                                   true,
		"kubectl -n shop describe pod cart":                              true,
		"sysctl -w net.core.somaxconn=4096":                              false,
		"nsenter --net=/proc/4/ns/net sysctl -w net.core.somaxconn=4096": false,
		"ip netns exec edge nft delete rule inet fw in handle 7":         false,
		"iptables-nft -t filter -D INPUT 1":                              false,
		"ip link set dev eth0 mtu 1500":                                  false,
		"ethtool -G eth0 rx 4096":                                        false,
		"echo 512 > /sys/fs/cgroup/x/pids.max":                           false,
		"redis-cli CONFIG SET maxclients 100":                            false,
		"mariadb -e 'SET GLOBAL max_connections = 70'":                   false,
		"kubectl -n shop set resources deployment/cart":                  false,
		"kill -HUP 4":                            false,
		"something new":                          false,
		"# in /etc/nginx/nginx.conf: listen 80;": false,
		"timeout 5":                              false,
		"":                                       false,
	} {
		var c Command
		if err := c.UnmarshalJSON([]byte(`"` + line + `"`)); err != nil {
			t.Fatal(err)
		}
		if got := c.Reads(); got != want {
			t.Errorf("%q only reads: %v, want %v", line, got, want)
		}
	}
}
