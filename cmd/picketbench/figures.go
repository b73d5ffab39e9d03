package main

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// noisySpread is the spread above which a side's figure says little.
const noisySpread = 0.30

// plan is the size of a measurement.
type plan struct {
	Rounds  int `json:"rounds"`  // of each side
	Tasks   int `json:"tasks"`   // a round
	Workers int `json:"workers"` // and as many submitters
	Payload int `json:"payload"` // bytes a task
}

// sample is one round of one side.
type sample struct {
	PerSecond    float64 `json:"tasksPerSecond"`
	RedisMicros  float64 `json:"redisCpuMicrosPerTask"` // processor time of redis-server
	CallsPerTask float64 `json:"redisCallsPerTask"`     // commands that clients sent; those inside a script do not count
}

// side is all rounds of one side, in order, and what they come to.
type side struct {
	Rounds []sample `json:"rounds"`
	Median float64  `json:"medianTasksPerSecond"`
	Spread float64  `json:"spread"` // (largest - smallest) / median
	Noisy  bool     `json:"noisy"`
}

// result is one JSON line.
type result struct {
	Scenario string  `json:"scenario"`
	Layer    string  `json:"layer"` // of Picket: engine, or http
	Fsync    string  `json:"fsync"`
	Plan     plan    `json:"plan"`
	Picket   side    `json:"picket"`
	Asynq    side    `json:"asynq"`
	Ratio    float64 `json:"ratio"` // median of Picket / median of asynq
	Redis    string  `json:"redis"`
	Go       string  `json:"go"`
	CPUs     int     `json:"cpus"`
	Date     string  `json:"date"`
}

func summarize(p plan, scenario, layer, fsync, redisVersion string, ours, theirs []sample) result {
	r := result{
		Scenario: scenario, Layer: layer, Fsync: fsync, Plan: p,
		Picket: sideOf(ours), Asynq: sideOf(theirs),
		Redis: redisVersion, Go: runtime.Version(), CPUs: runtime.NumCPU(), Date: time.Now().UTC().Format(time.DateOnly),
	}
	r.Ratio = round(r.Picket.Median/r.Asynq.Median, 2)
	return r
}

func sideOf(samples []sample) side {
	rates := make([]float64, len(samples))
	for i, s := range samples {
		rates[i] = s.PerSecond
	}
	slices.Sort(rates)
	mid := len(rates) / 2
	median := rates[mid]
	if len(rates)%2 == 0 {
		median = (rates[mid-1] + rates[mid]) / 2
	}
	spread := (rates[len(rates)-1] - rates[0]) / median
	return side{Rounds: samples, Median: round(median, 0), Spread: round(spread, 3), Noisy: spread > noisySpread}
}

// sampleOf turns a round's wall time and the two looks at Redis into figures
// a task.
func sampleOf(tasks int, took time.Duration, before, after usage) sample {
	n := float64(tasks)
	return sample{
		PerSecond:    round(n/took.Seconds(), 0),
		RedisMicros:  round((after.cpuSeconds-before.cpuSeconds)*1e6/n, 1),
		CallsPerTask: round(float64(after.calls-before.calls)/n, 2),
	}
}

func round(v float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(v*p) / p
}
