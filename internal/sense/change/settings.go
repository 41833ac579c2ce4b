package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// defaults are settings of the kernel that bear on how fast requests are, with
// the values that Linux 5.10 to 7.x has by itself, and those that distributions
// ship. What depends on the machine's memory is left out.
var defaults = []struct {
	name string
	is   []string
}{
	{"net.core.somaxconn", []string{"4096"}},
	{"net.core.netdev_max_backlog", []string{"1000"}},
	{"net.core.netdev_budget", []string{"300"}},
	{"net.core.busy_poll", []string{"0"}},
	{"net.ipv4.ip_local_port_range", []string{"32768 60999"}},
	{"net.ipv4.tcp_abort_on_overflow", []string{"0"}},
	{"net.ipv4.tcp_congestion_control", []string{"cubic", "reno"}},
	{"net.ipv4.tcp_ecn", []string{"2"}},
	{"net.ipv4.tcp_fin_timeout", []string{"60"}},
	{"net.ipv4.tcp_mtu_probing", []string{"0"}},
	{"net.ipv4.tcp_no_metrics_save", []string{"0"}},
	{"net.ipv4.tcp_retries2", []string{"15"}},
	{"net.ipv4.tcp_sack", []string{"1"}},
	{"net.ipv4.tcp_slow_start_after_idle", []string{"1"}},
	{"net.ipv4.tcp_syn_retries", []string{"6"}},
	{"net.ipv4.tcp_synack_retries", []string{"5"}},
	{"net.ipv4.tcp_syncookies", []string{"1"}},
	{"net.ipv4.tcp_timestamps", []string{"1"}},
	{"net.ipv4.tcp_tw_reuse", []string{"2"}},
	{"net.ipv4.tcp_window_scaling", []string{"1"}},
	{"net.unix.max_dgram_qlen", []string{"10", "512"}},
	{"fs.nr_open", []string{"1048576", "1073741816"}},
	{"kernel.numa_balancing", []string{"0", "1"}},
	{"kernel.sched_autogroup_enabled", []string{"0", "1"}},
	{"vm.dirty_background_ratio", []string{"10"}},
	{"vm.dirty_bytes", []string{"0"}},
	{"vm.dirty_ratio", []string{"20"}},
	{"vm.max_map_count", []string{"65530", "1048576"}},
	{"vm.overcommit_memory", []string{"0"}},
	{"vm.swappiness", []string{"60"}},
	{"vm.vfs_cache_pressure", []string{"100"}},
	{"vm.watermark_scale_factor", []string{"10"}},
	{"vm.zone_reclaim_mode", []string{"0"}},
}

// SettingNames lists the settings that are compared.
func SettingNames() []string {
	names := make([]string, 0, len(defaults))
	for _, d := range defaults {
		names = append(names, d.name)
	}
	return names
}

// Settings lists those of values, as "vm.swappiness", that are not as the
// kernel has them by itself. In says of which network namespace they are, in
// words, empty for the host's own.
func Settings(values map[string]string, in string) []observe.Change {
	var out []observe.Change
	for _, d := range defaults {
		value, ok := values[d.name]
		if !ok || slices.Contains(d.is, value) {
			continue
		}
		what := fmt.Sprintf("%s is %s, not %s", d.name, printable(value, 64), strings.Join(d.is[:1], ""))
		if in != "" {
			what += " " + in
		}
		out = append(out, observe.Change{Kind: observe.ChangeSetting, What: what})
	}
	return out
}
