package symbol

import (
	"encoding/binary"
	"sort"

	"github.com/slowray/slowray/internal/sense/elffile"
)

// functionStarts finds for addresses where their functions begin, in the table
// that binaries have for exceptions (.eh_frame_hdr, Linux Standard Base): also
// those that were stripped of their symbols. What has no name can so be named
// by function.
func functionStarts(f *elffile.File, addresses []uint64) map[uint64]uint64 {
	const (
		pcrelSigned4 = 0x1b // DW_EH_PE_pcrel | DW_EH_PE_sdata4
		unsigned4    = 0x03 // DW_EH_PE_udata4
		fromTable    = 0x3b // DW_EH_PE_datarel | DW_EH_PE_sdata4
		headerSize   = 12
		entrySize    = 8
	)
	section := f.Section(".eh_frame_hdr")
	head := make([]byte, headerSize)
	if section == nil || section.FileSize < headerSize {
		return nil
	}
	// As ld writes it, and nobody else does it otherwise.
	if _, err := section.ReadAt(head, 0); err != nil || head[0] != 1 || head[1] != pcrelSigned4 || head[2] != unsigned4 || head[3] != fromTable {
		return nil
	}
	n := int(min(uint64(binary.LittleEndian.Uint32(head[8:])), (section.FileSize-headerSize)/entrySize))
	failed := false
	start := func(i int) uint64 {
		var entry [4]byte
		if _, err := section.ReadAt(entry[:], headerSize+entrySize*int64(i)); err != nil {
			failed = true
		}
		return section.Addr + uint64(int64(int32(binary.LittleEndian.Uint32(entry[:]))))
	}
	found := map[uint64]uint64{}
	for _, a := range addresses {
		i := sort.Search(n, func(i int) bool { return start(i) > a }) - 1
		if i < 0 {
			continue
		}
		// Between the functions of a binary lie at most some of another language.
		if s := start(i); !failed && a-s < 1<<20 {
			found[a] = s
		}
		if failed {
			break
		}
	}
	return found
}
