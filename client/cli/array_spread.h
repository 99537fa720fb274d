// client/cli/array_spread.h: mean and spread of a metric over the members of an array that repeat
// the same job with another fold or another seed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// Returns a table with a line for each combination of the values that are neither a fold nor a
/// seed: the number of members that have the metric, its mean, its standard deviation (dividing by
/// their number less one), its least and its largest value. Empty if no member repeats another.
/// `titles` has the fields in which members differ, with the titles of their columns.
std::string render_spread(const std::vector<v1::Job>& members,
                          const std::map<std::string, std::string>& titles,
                          const std::string& metric, bool colour);

}  // namespace trainyard::cli
