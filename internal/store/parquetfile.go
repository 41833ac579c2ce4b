package store

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/slowray/slowray/internal/safefile"
)

const (
	rowsPerGroup = 64 << 10
	pageBytes    = 64 << 10 // of a column, not compressed
	dictBytes    = 1 << 20  // then a column goes on without a dictionary
)

// timeColumn is what the rows of all kinds are in order of.
const timeColumn = "start"

func writerOptions(k kind) []parquet.WriterOption {
	return []parquet.WriterOption{
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}),
		parquet.PageBufferSize(pageBytes),
		parquet.MaxRowsPerRowGroup(rowsPerGroup),
		parquet.DictionaryMaxBytes(dictBytes),
		parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending(timeColumn))),
		parquet.KeyValueMetadata("slowray.schema", "slowray."+string(k)+"/1"),
		parquet.CreatedBy("slowray", "1", ""),
		parquet.DataPageStatistics(false), // those of row groups are enough
	}
}

// publish writes a Parquet file that appears whole or not at all. seg gets its
// path and its size.
func publish[T any](home *safefile.Dir, seg *segment, rows func(*parquet.GenericWriter[T]) error) error {
	seg.path = seg.name()
	day := filepath.Dir(seg.path)
	if err := makeDay(home, day); err != nil {
		return err
	}
	unfinished := filepath.Join(day, newPrefix+strings.TrimSuffix(filepath.Base(seg.path), parquetSuffix))
	return home.ReplaceBy(seg.path, unfinished, func(f *os.File) error {
		w := parquet.NewGenericWriter[T](f, writerOptions(seg.kind)...)
		err := rows(w)
		if err == nil {
			err = w.Close()
		}
		if info, statErr := f.Stat(); statErr == nil {
			seg.bytes = info.Size()
		}
		return err
	})
}
