// Package catalogue tells the catalogue of causes to people and programs: a page
// for each cause, an index by symptom and by layer, and the same as JSON. In
// come the declarations of internal/cause and a list of the incidents of the lab; out go
// text and plain data. It judges nothing.
//
// The pages in docs/causes are what it makes: `make docs` writes them and the list of
// incidents anew, and tests fail when they are not what the declarations say.
package catalogue

//go:generate go run ./generate ../../docs/causes incidents.json
