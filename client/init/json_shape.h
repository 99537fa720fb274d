// client/init/json_shape.h: recognizes how the JSON documents that other tools write hold a table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::init {

enum class JsonLayout : uint8_t {
  kLines,        // an object on each line, without objects or lists in it
  kNestedLines,  // an object on each line, with objects or lists in it
  kColumns,      // one object with an object or a list for each column: DataFrame.to_json()
  kIndex,        // one object with an object for each row: to_json(orient='index')
  kSplit,        // the members columns and data: to_json(orient='split')
  kTable,        // the members schema and data: to_json(orient='table')
  kMember,       // one object, of which the member JsonShape::member is a list of rows
  kRows,         // a list of rows
  kNestedRows,   // a list of rows with objects or lists in them
  kNoTable,      // any other document
};

struct JsonShape {
  JsonLayout layout = JsonLayout::kNoTable;
  std::string member;
};

/// `text` begins with { or [, and may end before the document does.
JsonShape find_json_shape(std::string_view text);

}  // namespace trainyard::init
