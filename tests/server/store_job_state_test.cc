// Checks every pair of states against a hand-written table, so that a move added or lost by
// accident fails a cell.
#include <gtest/gtest.h>

#include "server/store/job_state.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {
namespace {

//                          to:  Q  S  R  P  +  F  C
constexpr bool kMay[7][7] = {{0, 1, 0, 1, 0, 1, 1},   // QUEUED
                             {1, 0, 1, 1, 0, 1, 1},   // STARTING
                             {1, 0, 0, 1, 1, 1, 1},   // RUNNING
                             {1, 0, 0, 0, 0, 0, 1},   // PAUSED
                             {0, 0, 0, 0, 0, 0, 0},   // SUCCEEDED
                             {0, 0, 0, 0, 0, 0, 0},   // FAILED
                             {0, 0, 0, 0, 0, 0, 0}};  // CANCELLED

TEST(JobState, TransitionsAreExactlyThoseOfTheTable) {
  for (const JobState from : kJobStates)
    for (const JobState to : kJobStates)
      EXPECT_EQ(can_move(from, to), kMay[static_cast<int>(from) - 1][static_cast<int>(to) - 1])
          << name_of(from) << " -> " << name_of(to);
}

TEST(JobState, TerminalStatesAreThoseWithoutATransition) {
  for (const JobState from : kJobStates) {
    bool any = false;
    for (const JobState to : kJobStates) any |= can_move(from, to);
    EXPECT_EQ(is_terminal(from), !any) << name_of(from);
  }
}

TEST(JobState, NumbersAndNamesMatchTheWire) {
  EXPECT_EQ(static_cast<int>(kJobStates.size()), v1::JobState_descriptor()->value_count() - 1);
  for (const JobState s : kJobStates)
    EXPECT_EQ(v1::JobState_Name(static_cast<v1::JobState>(s)), name_of(s));
}

}  // namespace
}  // namespace trainyard::server
