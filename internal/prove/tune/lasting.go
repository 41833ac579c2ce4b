package tune

import (
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove"
	"github.com/slowray/slowray/internal/prove/config"
)

// Lasting says how to make changes permanent. Where a setting of a server is
// written, its own files tell.
func (h *Host) Lasting(changes []cause.Change) []string {
	list := prove.Lasting(changes)
	for i := range changes {
		if text := config.Lasting(&changes[i]); text != "" {
			list[i] = text
		}
	}
	return list
}
