package threadcontexttest

// descriptors has gcc use TLSDESC, which on arm64 it does anyway.
var descriptors = []string{"-mtls-dialect=gnu2"}
