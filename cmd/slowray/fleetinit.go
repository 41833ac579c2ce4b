package main

import "errors"

type fleetInitCmd struct {
	URL string `arg:"" help:"Of the engine: clickhouse://[user@]host:8123/database."`
}

// Run makes the tables.
func (c *fleetInitCmd) Run(s *streams) error {
	return errors.New("fleet init: not in this version yet")
}
