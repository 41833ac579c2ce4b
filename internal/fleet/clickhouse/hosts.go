package clickhouse

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
)

// helloRow is what is known of a host, as a row.
func helloRow(table string, h *fleet.Host, now time.Time) (*block, error) {
	labels, err := json.Marshal(h.Labels)
	if err != nil {
		return nil, err
	}
	programs, err := json.Marshal(h.Programs)
	if err != nil {
		return nil, err
	}
	b, c, _ := newBlock(table, hostDefs)
	c["host"].putText(0, h.Name)
	c["id"].putText(0, h.ID)
	c["time"].put32(0, uint32(min(max(now.Unix(), 0), 1<<32-1)))
	c["labels"].putText(0, string(labels))
	c["addresses"].putText(0, strings.Join(h.Addresses, ","))
	c["kernel"].putText(0, h.Kernel)
	c["cpus"].put32(0, uint32(h.CPUs))
	c["version"].putText(0, h.Version)
	c["programs"].putText(0, string(programs))
	b.rows = 1
	return b, nil
}

// parseKnown reads what helloRow wrote of a host. Labels and programs that are not what
// they should be are none.
func parseKnown(h *fleet.Host, labels, programs []byte, addresses string) {
	if json.Unmarshal(labels, &h.Labels) != nil {
		h.Labels = nil
	}
	if json.Unmarshal(programs, &h.Programs) != nil {
		h.Programs = nil
	}
	if addresses != "" {
		h.Addresses = strings.Split(addresses, ",")
	}
}

// maxHosts is how many an answer has at most, those that said Hello last.
const maxHosts = 200_000

// Hosts implements fleet.Archive, in the order of names.
func (db *DB) Hosts(ctx context.Context) ([]fleet.HostSeen, error) {
	var host, id, labels, addresses, kernel, version, programs proto.ColStr
	var at, cpus proto.ColUInt32
	var all []fleet.HostSeen
	err := db.anyServer(ctx, func(server string, d Dialect) error {
		all = nil
		return db.c.query(ctx, server, d, maxKept, fmt.Sprintf(`SELECT CAST(host AS String) AS host_, id, toUInt32(max(time)) AS last, argMax(labels, time) AS labels_, argMax(addresses, time) AS addresses_,
CAST(argMax(kernel, time) AS String) AS kernel_, argMax(cpus, time) AS cpus_, CAST(argMax(version, time) AS String) AS version_, argMax(programs, time) AS programs_ FROM hosts GROUP BY host, id ORDER BY last DESC LIMIT %d`, maxHosts),
			proto.Results{{Data: &host}, {Data: &id}, {Data: &at}, {Data: &labels}, {Data: &addresses}, {Data: &kernel}, {Data: &cpus}, {Data: &version}, {Data: &programs}},
			func(n int) bool {
				for i := range min(n, maxHosts-len(all)) {
					s := fleet.HostSeen{
						Host: fleet.Host{Name: host.Row(i), ID: id.Row(i), Kernel: kernel.Row(i), CPUs: int(cpus[i]), Version: version.Row(i)},
						Last: time.Unix(int64(at[i]), 0).UTC(),
					}
					parseKnown(&s.Host, labels.RowBytes(i), programs.RowBytes(i), addresses.Row(i))
					all = append(all, s)
				}
				return len(all) < maxHosts
			})
	})
	if err != nil {
		return nil, fmt.Errorf("clickhouse: hosts: %w", err)
	}
	// A host whose history was begun anew is one host: the latest counts.
	latest := fleet.Latest(all)
	sort.Slice(latest, func(i, j int) bool { return latest[i].Name < latest[j].Name })
	return latest, nil
}

func retentionOf(set map[string]string) Retention {
	days, _ := strconv.Atoi(set["retention_days"])
	return Retention{days}
}
