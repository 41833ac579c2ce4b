package ship

import "github.com/slowray/slowray/internal/fleet"

// at is the Position of the record with a number, counted from 1, in a log.
func at(log uint64, number uint32) fleet.Position {
	return fleet.Position(log<<32 | uint64(number))
}

// logOf and numberOf are what a Position is made of.
func logOf(p fleet.Position) uint64    { return uint64(p) >> 32 }
func numberOf(p fleet.Position) uint32 { return uint32(p) }

// allOfLog stands for the last record of a log that is ended, however many it has.
const allOfLog = 1<<32 - 1
