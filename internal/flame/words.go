package flame

import (
	"slices"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

// amount writes a value with its unit.
func amount(v int64, t observe.StackValue) string {
	switch t.Unit {
	case "nanoseconds":
		return figure.Seconds(time.Duration(v).Seconds())
	case "count":
		return figure.Count(v)
	}
	return figure.Count(v) + " " + t.Unit
}

var typeNames = map[string]string{"cpu": "On CPU", "off-cpu": "Off CPU", "runnable": "Waiting for a CPU", "samples": "Samples"}

func typeName(t observe.StackValue) string {
	if name, ok := typeNames[t.Type]; ok {
		return name
	}
	return t.Type
}

var kindNames = map[observe.FrameKind]string{
	observe.FrameKernel: "kernel", observe.FrameNative: "native", observe.FrameGo: "Go", observe.FramePython: "Python",
	observe.FrameJava: "Java", observe.FramePHP: "PHP", observe.FrameNode: "Node.js", observe.FrameRuby: "Ruby",
	observe.FrameUnknown: "unknown", frameProcess: "process", frameThread: "thread",
}

// kindOrder is the order of kinds in a legend.
var kindOrder = []observe.FrameKind{
	observe.FrameKernel, observe.FrameNative, observe.FrameGo, observe.FramePython, observe.FrameJava,
	observe.FramePHP, observe.FrameNode, observe.FrameRuby, observe.FrameUnknown,
}

func kindName(kind observe.FrameKind) string { return kindNames[kind] }

// knownKind is a kind that can be in a stack, and has a colour.
func knownKind(kind observe.FrameKind) observe.FrameKind {
	if slices.Contains(kindOrder, kind) {
		return kind
	}
	return observe.FrameUnknown
}
