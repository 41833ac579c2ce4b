package commandline

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/shell"
)

// Numbers reads whole numbers, and says of what is none that it is none.
type Numbers struct{}

// Decode implements kong.Mapper.
func (Numbers) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("number")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	n, err := strconv.ParseInt(text, 10, target.Type().Bits())
	switch {
	case err == nil:
		target.SetInt(n)
		return nil
	case ctx.Value.Name == "port":
		return fmt.Errorf("%q is not a port number (1 to 65535)", text)
	case ctx.Value.Name == "pid":
		return fmt.Errorf("%q is not a pid (pgrep %s lists those of a program)", text, shell.Word(text))
	}
	return fmt.Errorf("%q is not a whole number", text)
}
