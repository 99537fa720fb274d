// tests/proto/spec_text.h: parses a job's spec from the text format of its message.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::testing {

inline v1::JobSpec parse_spec(const std::string& text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

}  // namespace trainyard::testing
