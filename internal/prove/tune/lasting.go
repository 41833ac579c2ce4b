package tune

import (
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove"
)

// Lasting says how to make changes permanent.
func (h *Host) Lasting(changes []cause.Change) []string { return prove.Lasting(changes) }
