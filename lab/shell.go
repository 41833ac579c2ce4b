package lab

import (
	"context"
	"errors"
)

// Shell plants an incident and gives a shell.
func Shell(ctx context.Context, name string, opt Options) error { return errors.New("todo") }
