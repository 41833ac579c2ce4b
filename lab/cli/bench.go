package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/lab"
	"github.com/slowray/slowray/lab/blind"
)

// benchWindow is twice as long as slowray looks: all draws are quick ones.
const benchWindow = 10e9

// bench draws incidents; the exit status is 1 where slowray was wrong.
func bench(ctx context.Context, s *streams, c *commandline.LabBench) error {
	if len(c.Results) > 0 {
		return results(s, c)
	}
	count, from := c.Count, c.From
	if c.Only > 0 {
		from = c.Only
		if c.Healthy > 0 {
			count, c.Healthy = 0, 1
		} else {
			count = 1
		}
	}
	results, err := lab.Bench(ctx, lab.Draws{Count: count, Healthy: c.Healthy, From: from, Only: c.Only > 0, Kind: c.Kind, Out: c.Out},
		lab.Options{Out: s.out, Seed: c.Seed, Window: benchWindow, JSON: c.JSON, Save: c.Save, Verbose: c.Verbose})
	if err != nil {
		return err
	}
	score := blind.NewScore(results)
	if c.JSON {
		if err := printable.WriteJSON(s.out, results); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(s.out, score.Summary())
	}
	if len(score.Wrong) > 0 {
		return commandline.Exit(commandline.ExitFindings)
	}
	return nil
}

// results writes what follows from results that were kept.
func results(s *streams, c *commandline.LabBench) error {
	all, err := blind.Read(c.Results...)
	if err != nil {
		return err
	}
	all = blind.Unique(all)
	if c.Board != "" {
		if err := os.WriteFile(c.Board, []byte(blind.Board(all)), 0o644); err != nil {
			return err
		}
	}
	if c.Fit != "" {
		labels := blind.Labels(all)
		model := blind.Fit(labels)
		fmt.Fprintf(s.out, "%d findings; expected calibration error %.3f on draws that were held out\n", len(labels), blind.CalibrationError(blind.HeldOut(labels)))
		if err := os.WriteFile(c.Fit, []byte(blind.Table(&model, len(labels))), 0o644); err != nil {
			return err
		}
	}
	proofs, err := blind.Proofs(c.Proofs...)
	if err != nil {
		return err
	}
	if len(proofs) > 0 {
		fmt.Fprintf(s.out, "%d findings that slowray prove tried; expected calibration error %.3f\n", len(proofs), blind.CalibrationError(proofs))
	}
	fmt.Fprintln(s.out, blind.NewScore(all).Summary())
	return nil
}
