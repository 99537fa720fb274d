// client/init/table_shape.h: recognizes how a text's records are separated into fields, and whether
// the first record names the columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainyard::init {

struct TableShape {
  char delimiter = ',';
  size_t fields = 1;    // the most frequent number of fields in a record
  double agreeing = 0;  // the share of records with that many fields
  size_t records = 0;
  bool header = true;
  // The line of the first record with that many fields, if the records before it have fewer, as a
  // title above a table does; else 0.
  int64_t table_line = 0;
};

/// `text` must end at the end of a record.
TableShape find_table_shape(std::string_view text);

/// Returns whether the first records are fields in quotes that contain a whole record each:
/// "\"a,b\"".
bool has_quoted_lines(std::string_view text);

}  // namespace trainyard::init
