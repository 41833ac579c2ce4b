package tune

import (
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove"
	"github.com/slowray/slowray/internal/prove/config"
	"github.com/slowray/slowray/internal/shell"
)

// Lasting says how to make changes permanent. Where a setting of a server is
// written, its own files tell.
func (h *Host) Lasting(changes []cause.Change) []shell.Command {
	list := prove.Lasting(changes)
	for i := range changes {
		if note := config.Lasting(&changes[i]); !note.IsZero() {
			list[i] = note
		}
	}
	return list
}
