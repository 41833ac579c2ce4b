// Package language puts what slowray says to people into their language.
//
// In: English sentences, as findings and reports have them. Out: the same in the language
// of the reader, or the English where the catalogue has none.
//
// Findings are made, kept and sent in English: reports come out of files, out of histories
// and from other hosts, and their JSON is a contract. So it is the text that is translated,
// when it is printed: a catalogue (zh.txt) holds each sentence with its places for names and
// figures, and what stands there is kept, or is a sentence of the catalogue itself.
package language
