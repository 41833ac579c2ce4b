package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"
	"strings"
)

// What an agent asks is small, and it asks whoever answers at an address: such answers are
// read as text, bounded, and nothing in them is believed to be a length.

// maxSmall bounds a small answer, bytes.
const maxSmall = 1 << 20

// small asks one server, in a database or in none, and gives the rows of the answer, each
// of as many texts as there are to be columns.
func (c *client) small(ctx context.Context, server, database, statement string, columns int) (rows [][]string, err error) {
	err = c.inPart(ctx, func(skip url.Values) error {
		rows, err = c.askSmall(ctx, server, database, statement, columns, skip)
		return err
	})
	return rows, err
}

// askSmall is small once, with what a part of an answer takes.
func (c *client) askSmall(ctx context.Context, server, database, statement string, columns int, skip url.Values) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	params := c.params()
	if database == "" {
		params.Del("database")
	}
	maps.Copy(params, skip)
	params.Set("wait_end_of_query", "1") // the status then tells of every error
	var rows [][]string
	err := c.do(ctx, server, params, []byte(statement+" FORMAT TabSeparated"), func(r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, maxSmall+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxSmall:
			return errors.New("answer: is too large to be one of ClickHouse")
		}
		rows, err = parseSmall(string(text), columns)
		return err
	})
	return rows, err
}

// parseSmall gives the rows of an answer in FORMAT TabSeparated, each of so many columns.
// What ends in the midst of a row is no answer.
func parseSmall(text string, columns int) (rows [][]string, err error) {
	for line := range strings.Lines(text) {
		row := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", columns+1)
		if len(row) != columns || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("answer: %.60q is none of ClickHouse", line)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// numbers asks for one row of numbers.
func (c *client) numbers(ctx context.Context, server, statement string, columns int) ([]uint64, error) {
	rows, err := c.small(ctx, server, c.cfg.Database, statement, columns)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 {
		// Nothing is no zero: who believed that would send again what is there.
		return nil, fmt.Errorf("%s: answer: has %d rows, and not one", server, len(rows))
	}
	list := make([]uint64, columns)
	for i, text := range rows[0] {
		if list[i], err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: answer: %.60q is no number", server, text)
		}
	}
	return list, nil
}

// number asks for one number.
func (c *client) number(ctx context.Context, server string, _ Dialect, statement string) (uint64, error) {
	list, err := c.numbers(ctx, server, statement, 1)
	if err != nil {
		return 0, err
	}
	return list[0], nil
}
