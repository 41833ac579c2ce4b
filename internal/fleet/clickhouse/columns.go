package clickhouse

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// The tables' columns: by the names of docs/history-columns.md, which tells what each holds.
// They are written down once, and everything else follows the lists: the tables, the
// columns that are sent, and those that are asked for.

// columnDef declares a column.
type columnDef struct {
	name string
	typ  string // in the plain dialect, as in FORMAT Native
	kind columnKind
}

// columnKind is how a column is stored in the modern dialect, and how the values of
// a sum of rows come about.
type columnKind uint8

const (
	keyText columnKind = iota // a text that comes again and again; part of what rows are added up by
	freeText
	keyNumber // part of what rows are added up by
	rising    // numbers that mostly rise: their differences are stored
	value     // added up
	greatest  // the greatest is kept
	least     // the least that is not 0 is kept
	plain     // as it is
	buckets   // a histogram: bucket numbers and counts, added up by bucket
)

// sideType is that of a side.
var sideType = typeOf(&schema.Fields("side")[0])

// typeOf is the type of a field's column.
func typeOf(f *schema.Field) string {
	switch f.Kind {
	case schema.Text, schema.Addr, schema.Flags:
		return "String"
	case schema.Enum:
		names := make([]string, len(f.Names))
		for i, name := range f.Names {
			names[i] = fmt.Sprintf("%s = %d", quote(name), f.First+int64(i))
		}
		return "Enum8(" + strings.Join(names, ", ") + ")"
	}
	sign := "U"
	if f.Signed {
		sign = ""
	}
	return fmt.Sprintf("%sInt%d", sign, f.Bits)
}

// defOf is the column of a field.
func defOf(f *schema.Field) columnDef {
	d := columnDef{f.Name, typeOf(f), value}
	switch {
	case f.Kind == schema.Enum || f.Kind == schema.Bool:
		d.kind = plain
	case f.Role == schema.FreeText:
		d.kind = freeText
	case f.Role == schema.Key && d.typ == "String":
		d.kind = keyText
	case f.Role == schema.Key:
		d.kind = keyNumber
	}
	return d
}

// requestFields are those of a request but for its start, which is among hostColumns.
var requestFields = schema.Requests[1:]

// hostColumns are those before the others in what hosts ship.
var hostColumns = []columnDef{
	{"host", "String", keyText},
	{"history", "String", keyText}, // fleet.Host.ID: what positions are of
	{"position", "UInt64", rising},
	{"batch", "UInt64", rising}, // position of the first record of its batch
	{"day", "Date", plain},
	{"time", "DateTime", rising},
	{"service", "String", keyText},
	{"start_us", "Int64", rising},
}

var requestDefs = func() []columnDef {
	list := slices.Clone(hostColumns)
	for i := range requestFields {
		list = append(list, defOf(&requestFields[i]))
	}
	return list
}()

var ledgerDefs = func() (list []columnDef) {
	for p := range observe.NumParts {
		list = append(list, columnDef{schema.LedgerColumn(p), "Int64", value})
	}
	return list
}()

var splitDefs = func() (list []columnDef) {
	for p := range observe.NumServerParts {
		list = append(list, columnDef{schema.SplitColumn(p), "Int64", value})
	}
	return list
}()

// endpointDefs are what the rows of seconds are added up by, and the sums.
var endpointDefs = []columnDef{
	{"side", sideType, keyNumber}, {"netns", "UInt64", keyNumber}, {"addr", "String", keyText}, {"port", "UInt16", keyNumber},
	{"pid", "Int32", keyNumber}, {"comm", "String", keyText}, {"cgroup", "String", keyText}, {"container", "String", keyText},
	{"container_name", "String", keyText}, {"unit", "String", keyText},
}

// workloadDefs are who both ends of an endpoint are in Kubernetes. The rows that seconds
// are added up in have them by their service. Which pod is behind a service's address single
// requests tell.
var workloadDefs = func() (list []columnDef) {
	for i := range requestFields {
		if f := &requestFields[i]; strings.Contains(f.Name, "k8s_") && f.Name != "peer_k8s_service" {
			list = append(list, defOf(f))
		}
	}
	return list
}()

// sumDefs are schema.Counts, and the parts of the requests' time.
var sumDefs = func() (list []columnDef) {
	for _, c := range schema.Counts {
		d := columnDef{c.Name, "UInt64", map[schema.Merge]columnKind{schema.Sum: value, schema.Most: greatest, schema.Least: least}[c.Merge]}
		if c.Kind == schema.Micros {
			d.typ = "Int64"
		}
		list = append(list, d)
	}
	return join(list, ledgerDefs, []columnDef{{"split_requests", "UInt64", value}, {"split_server_us", "Int64", value}}, splitDefs)
}()

// Histograms end in Map: that is how a SummingMergeTree knows that counts are added
// up by bucket. The key of parts_histMap is part<<11 | bucket, see partKey; that of
// flagsMap the bit of the flag.
var histDefs = []columnDef{{"total_histMap", "", buckets}, {"server_histMap", "", buckets}, {"rtt_histMap", "", buckets}, {"flagsMap", "", buckets}}

var partsHist = columnDef{"parts_histMap", "", buckets}

var secondDefs = join(hostColumns, []columnDef{{"seconds", "UInt32", keyNumber}}, endpointDefs, workloadDefs, sumDefs, histDefs, []columnDef{partsHist})

var findingDefs = join(hostColumns, []columnDef{
	{"stop_us", "Int64", rising},
	{"cause", "String", keyText}, {"title", "String", keyText}, {"role", "String", keyText}, {"verdict", "String", keyText}, {"consequence_of", "String", keyText},
	{"share", "Float64", plain}, {"of", "String", keyText}, {"text", "String", freeText}, {"weight", "Float64", plain},
	{"subject_kind", "String", keyText}, {"netns", "UInt64", keyNumber}, {"pid", "Int32", keyNumber}, {"comm", "String", keyText},
	{"port", "Int32", keyNumber}, {"addr", "String", keyText}, {"interface", "String", keyText}, {"rule", "String", freeText},
	{"container", "String", keyText}, {"path", "String", freeText}, {"json", "String", freeText},
})

// hostDefs are what is known of hosts: the row with the latest time counts.
var hostDefs = []columnDef{
	{"host", "String", keyText}, {"id", "String", freeText}, {"time", "DateTime", plain},
	{"labels", "String", freeText},    // JSON: an object of texts
	{"addresses", "String", freeText}, // with commas between them
	{"kernel", "String", keyText}, {"cpus", "UInt32", plain}, {"version", "String", keyText},
	{"programs", "String", freeText}, // JSON: an object of fleet.Program; since version 2
}

var anomalyDefs = []columnDef{
	{"day", "Date", plain}, {"time", "DateTime", rising}, {"host", "String", keyText}, {"service", "String", keyText}, {"side", sideType, plain},
	{"addr", "String", keyText}, {"port", "UInt16", keyNumber}, {"signal", "String", keyText},
	{"value", "Float64", plain}, {"expected", "Float64", plain}, {"p", "Float64", plain},
}

var eventDefs = []columnDef{
	{"day", "Date", plain}, {"time", "DateTime", rising}, {"at_us", "Int64", rising}, {"id", "String", freeText}, {"kind", "String", keyText},
	{"text", "String", freeText}, {"document", "String", freeText}, // JSON: schema/fleetevent.schema.json
}

func join(lists ...[]columnDef) []columnDef {
	var all []columnDef
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
