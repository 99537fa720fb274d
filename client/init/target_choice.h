// client/init/target_choice.h: chooses the column to predict as a careful person would: by the
// names of the columns, their places, and what kind of values they have. A pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/init/column_profile.h"

namespace trainyard::init {

struct TargetChoice {
  enum class Certainty : uint8_t { kGuess, kLikely, kSure } certainty = Certainty::kGuess;
  std::vector<size_t> columns;  // the chosen one and at most two others, the best first
  std::string why;              // "by its name", "as the last suitable column"
};

/// Chooses the target if the user names none; nothing if no column is suitable. `file` is the name
/// of the table's file, which often tells what the table is about.
std::optional<TargetChoice> choose_target(const TableProfile& table, std::string_view file);

/// Returns "sure", "likely" or "a guess".
std::string_view text_of(TargetChoice::Certainty certainty);

}  // namespace trainyard::init
