// client/init/column_fate.h: what becomes of a column: read as it is, as something else, or left
// out.
#pragma once

#include <cstdint>
#include <string>

#include "client/init/column_look.h"

namespace trainyard::init {

struct Decision {
  enum class Fate : uint8_t { kNumber, kCategory, kMixed, kDate, kText, kLeftOut };
  Fate fate = Fate::kNumber;
  std::string why = {};  // left out; of text: what it would be left out for
};

/// By the cells alone: what an ingest would refuse, and traps of text. Traps of numbers show later.
Decision decide(const ColumnLook& column, int64_t rows);

/// Why a column with this trap is left out.
std::string trap_text(ColumnTrap trap, const ColumnFacts& column);

/// The side of the square images whose pixels the columns are; 0 if they are not.
int64_t pixel_side(const TableLook& table, size_t target);

}  // namespace trainyard::init
