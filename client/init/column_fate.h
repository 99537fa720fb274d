// client/init/column_fate.h: decides how a column is used: read by default, read as another kind,
// or left out.
#pragma once

#include <cstdint>
#include <string>

#include "client/init/column_profile.h"

namespace trainyard::init {

struct Decision {
  enum class Fate : uint8_t { kNumber, kCategory, kMixed, kDate, kText, kLeftOut };
  Fate fate = Fate::kNumber;
  // why the column is left out; for a text column, why it would be left out if it were categories
  std::string why = {};
};

/// Decides by the cells alone. They show what an ingest would refuse, and texts that mislead a
/// model; numbers that mislead a model are found later, in the ingested data.
Decision decide(const ColumnProfile& column, int64_t rows);

/// Returns whether a target is better predicted as classes than as a number: if it is text, or has
/// few different whole numbers.
bool predicts_classes(const ColumnProfile& target);

/// Returns whether each row has a class of its own, so that no model can be tested on another row.
bool has_only_single_rows(const ColumnProfile& target);

/// Returns the number of cells such as "None" that an ingest reads as classes of the target, since
/// it is text; 0 if they are missing, as they are in a target of numbers.
int64_t count_marked_classes(const ColumnProfile& target);

/// Returns why a column with this trap is left out.
std::string trap_text(ColumnTrap trap, const ColumnFacts& column);

/// Returns the side of the square images whose pixels are the columns; 0 if the columns are not
/// such pixels.
int64_t pixel_side(const TableProfile& table, size_t target);

}  // namespace trainyard::init
