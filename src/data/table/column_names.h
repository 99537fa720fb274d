// src/data/table/column_names.h: what a column's name alone suggests about its values, by English
// words. Pure functions. A caller confirms the suggestion by the values where they can tell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

/// Returns the words of a name in lower case: "customer", "no" for "customer_no" and "CustomerNo".
std::vector<std::string> words_of_name(std::string_view name);

/// Returns true for typical names of identifiers: "id", "PassengerId", "order_id", "caseid",
/// "Unnamed: 0", "rownames", "uuid".
bool is_identifier_name(std::string_view name);

/// Returns whether whole numbers that all differ identify the rows if their column has this name:
/// names of identifiers, and names such as "customer_no", "PatientNr", "obs", "case".
bool may_name_rows(std::string_view name);

/// Returns whether the name is that of somebody or something that is observed, possibly several
/// times: "subject", "patient", or an identifier of them such as "schoolid".
bool is_subject_name(std::string_view name);

/// Returns true for names of points in time and of their parts: "year", "order_date", "month".
bool is_time_name(std::string_view name);

/// Returns whether numbers that count up from row to row may still be a measurement if their column
/// has this name: "score", "age", "rank", and names of times.
bool may_count_up(std::string_view name);

}  // namespace trainyard
