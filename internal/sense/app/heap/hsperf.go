package heap

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/slowray/slowray/internal/budget"
)

// perfData is what is taken from a JVM's counters.
type perfData struct {
	maxBytes, usedBytes uint64
	collections         uint64
	gcTicks, hz         uint64
	collector           string
}

var errNotPerfData = errors.New("not the counters of a JVM")

// parsePerfData reads the memory that a HotSpot JVM maps at
// /tmp/hsperfdata_USER/PID (PerfDataPrologue and PerfDataEntry,
// src/hotspot/share/runtime/perfMemory.hpp): a head of 32 bytes, then entries of
// a head of 20 bytes, a name and a value.
func parsePerfData(budget *budget.Budget, b []byte) (perfData, error) {
	var d perfData
	if len(b) < 32 || binary.BigEndian.Uint32(b) != 0xcafec0c0 || b[5] != 2 {
		return d, errNotPerfData
	}
	var order binary.ByteOrder = binary.BigEndian
	if b[4] == 1 {
		order = binary.LittleEndian
	}
	at, count := int(order.Uint32(b[24:])), int(order.Uint32(b[28:]))
	if at < 32 || count > 65536 {
		return d, errNotPerfData
	}
	longs, texts := map[string]uint64{}, map[string]string{}
	for range count {
		if at < 0 || len(b)-at < 20 {
			break
		}
		if err := budget.Node(); err != nil {
			return d, err
		}
		e := b[at:]
		length, nameAt, vector := int(order.Uint32(e)), int(order.Uint32(e[4:])), int(order.Uint32(e[8:]))
		valueAt := int(order.Uint32(e[16:]))
		if length < 20 || length > len(e) || nameAt < 20 || nameAt >= length || valueAt < 20 || valueAt > length {
			break
		}
		name, _, _ := strings.Cut(string(e[nameAt:length]), "\x00")
		if !strings.HasPrefix(name, "sun.gc.") && !strings.HasPrefix(name, "sun.os.") {
			at += length
			continue
		}
		switch kind := e[12]; {
		case kind == 'J' && vector == 0 && valueAt+8 <= length:
			longs[name] = order.Uint64(e[valueAt:])
		case kind == 'B' && vector > 0 && vector <= length-valueAt:
			texts[name], _, _ = strings.Cut(string(e[valueAt:valueAt+vector]), "\x00")
		}
		at += length
	}
	d.read(longs, texts)
	if d.hz == 0 {
		return d, errNotPerfData
	}
	return d, nil
}

// read takes what matters. The heap is the generations 0 and 1, with their
// largest capacity together; where a collector has one region for both (G1),
// each generation may grow to all of it.
func (d *perfData) read(longs map[string]uint64, texts map[string]string) {
	d.hz = longs["sun.os.hrt.frequency"]
	for _, gen := range []string{"0", "1"} {
		size := longs["sun.gc.generation."+gen+".maxCapacity"]
		d.collections += longs["sun.gc.collector."+gen+".invocations"]
		d.gcTicks += longs["sun.gc.collector."+gen+".time"]
		for _, space := range []string{"0", "1", "2"} {
			d.usedBytes += longs["sun.gc.generation."+gen+".space."+space+".used"]
		}
		if size < 1<<62 {
			d.maxBytes += size
		}
	}
	name := texts["sun.gc.collector.0.name"]
	switch {
	case strings.HasPrefix(name, "Copy"), strings.HasPrefix(name, "Serial"):
		d.collector = "serial"
	case strings.HasPrefix(name, "PS"), strings.HasPrefix(name, "Parallel"):
		d.collector = "parallel"
	case strings.HasPrefix(name, "G1"):
		d.collector = "g1"
		d.maxBytes = max(longs["sun.gc.generation.0.maxCapacity"], longs["sun.gc.generation.1.maxCapacity"])
	case strings.HasPrefix(name, "Z"):
		d.collector = "zgc"
	case strings.HasPrefix(name, "Shenandoah"):
		d.collector = "shenandoah"
	}
}
