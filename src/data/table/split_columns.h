// src/data/table/split_columns.h: the columns of a table by which jobs may split its training rows.
#pragma once

#include "src/data/table/csv_cell.h"
#include "src/data/table/table_fill.h"
#include "src/data/typed_dataset.h"

namespace trainyard {

/// Makes another pass over the training file if the options name a column of groups or of times,
/// and adds their values to the schema and to the training rows. Values of a group are equal if
/// their texts are, whole numbers if their values are; rows without a value are one group. A time
/// is a date or a number. Refusals: a row without a time, times of both kinds, more than kGroupsMax
/// groups, a group with a text longer than kNameBytesMax, and a file that changed after the first
/// pass.
Status read_split_columns(const CsvOptions& options, const CellReader& cells, const TableFile& file,
                          TypedDataset& data);

}  // namespace trainyard
