package symbol

import (
	"debug/elf"
	"encoding/binary"
	"slices"
)

// functionStarts finds for addresses where their functions begin, in the table
// that binaries have for exceptions (.eh_frame_hdr, Linux Standard Base): also
// those that were stripped of their symbols. What has no name can so be told
// by function.
func functionStarts(f *elf.File, addresses []uint64) map[uint64]uint64 {
	const (
		pcrelSigned4  = 0x1b // DW_EH_PE_pcrel | DW_EH_PE_sdata4
		unsigned4     = 0x03 // DW_EH_PE_udata4
		fromTable     = 0x3b // DW_EH_PE_datarel | DW_EH_PE_sdata4
		headerSize    = 12
		maxTableBytes = 64 << 20
	)
	section := f.Section(".eh_frame_hdr")
	if section == nil || section.Size < headerSize || section.Size > maxTableBytes {
		return nil
	}
	data, err := section.Data()
	// As ld writes it, and nobody else does it otherwise.
	if err != nil || len(data) < headerSize || data[0] != 1 || data[1] != pcrelSigned4 || data[2] != unsigned4 || data[3] != fromTable {
		return nil
	}
	n := int(min(uint64(binary.LittleEndian.Uint32(data[8:])), uint64(len(data)-headerSize)/8))
	start := func(i int) uint64 {
		return section.Addr + uint64(int64(int32(binary.LittleEndian.Uint32(data[headerSize+8*i:]))))
	}
	index := make([]int, n)
	for i := range index {
		index[i] = i
	}
	found := map[uint64]uint64{}
	for _, a := range addresses {
		i, exact := slices.BinarySearchFunc(index, a, func(i int, a uint64) int {
			switch s := start(i); {
			case s < a:
				return -1
			case s > a:
				return 1
			}
			return 0
		})
		if !exact {
			i--
		}
		// Between the functions of a binary lie at most some of another language.
		if i >= 0 && a-start(i) < 1<<20 {
			found[a] = start(i)
		}
	}
	return found
}
