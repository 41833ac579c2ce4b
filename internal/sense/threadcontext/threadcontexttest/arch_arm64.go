package threadcontexttest

var descriptors = []string{"-mtls-dialect=desc"}
