// src/plan/lanes.h: the two lanes in which a recorded step may run. Small kernels leave most of a
// GPU idle, so gradients of weights, and updates, run in a side lane, concurrently with the
// gradients of activations in the main lane.
//
//   main   dy3 ─ dx3 ─── dx2 ─── dw1 ─┬─ updates of the rest
//            └╮    └╮                 │
//   side     dw3 ── dw2 ── update 3 ──┘
//
// A step of the side lane starts after all steps before it in the program, of both lanes. A step of
// the main lane starts after those of the main lane, and if it joins, after those of the side lane
// too. At the end of a program everything has ended. Whoever runs the steps one after another, in
// the program's order, gets the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

enum class Lane : uint8_t { kMain, kSide };

struct LaneStep {
  Lane lane = Lane::kMain;
  bool joins = false;  // main lane: starts after all earlier steps of the side lane
  /// Whether the step starts after all steps before it in the program.
  bool waits_for_all() const { return lane == Lane::kSide || joins; }
};

/// Returns the lanes of the steps in `order`: the side lane has the gradients of weights, the
/// updates, and the constants, that precede the last gradient of an activation. Empty if the side
/// lane would be empty, or if a node starts work of its own, such as an exchange between devices.
std::vector<LaneStep> assign_lanes(const Graph& graph, const std::vector<NodeId>& order);

/// Returns, by step, the step at which its work has certainly ended: itself in the main lane, and
/// the next joining step, or the number of steps, in the side lane. Empty if `lanes` is.
std::vector<int64_t> ends_of(const std::vector<LaneStep>& lanes);

}  // namespace trainyard
