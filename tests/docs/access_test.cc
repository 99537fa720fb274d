// Compares the table of calls in docs/access.md with the access table. A table is between
// "<!-- calls: SERVICE -->" and "<!-- end of calls -->".
#include "server/handlers/access.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/docs/page_part.h"
#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/people_service.pb.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::server {
namespace {

using testing::Cells;

/// Returns the cells of the roles: none in the project, viewer, member, maintainer, operator,
/// admin.
Cells roles_of(const AccessRow& row) {
  const std::string operators = row.operators ? "yes" : "";
  switch (row.need) {
    case AccessNeed::kAnyone:
      return {"yes", "yes", "yes", "yes", "yes", "yes"};
    case AccessNeed::kSelf:
      return {"own", "own", "own", "own", "own", "yes"};
    case AccessNeed::kViewer:
      return {"", "yes", "yes", "yes", operators, "yes"};
    case AccessNeed::kReader:
      return {"shared", "yes", "yes", "yes", operators, "yes"};
    case AccessNeed::kMember:
      return {"", "", "yes", "yes", operators, "yes"};
    case AccessNeed::kOwner:
      return {"", "", "own", "yes", operators, "yes"};
    case AccessNeed::kMaintainer:
      return {"", "", "", "yes", operators, "yes"};
    case AccessNeed::kOperator:
      return {"", "", "", "", "yes", "yes"};
    case AccessNeed::kAdmin:
      return {"", "", "", "", "", "yes"};
  }
  return {};
}

std::string table_of(const google::protobuf::ServiceDescriptor& service) {
  std::vector<Cells> lines{
      {"call", "asked for", "no role", "viewer", "member", "maintainer", "operator", "admin"},
      {"---", "---", "---", "---", "---", "---", "---", "---"}};
  for (int i = 0; i < service.method_count(); ++i) {
    const AccessRow* const row = find_access_row(service.method(i)->name());
    if (row == nullptr) {
      ADD_FAILURE() << service.method(i)->full_name() << " has no row";
      continue;
    }
    std::string fields;
    for (const std::string_view field : {row->field, row->also}) {
      if (!field.empty()) fields += (fields.empty() ? "`" : ", `") + std::string(field) + "`";
    }
    Cells cells{"`" + std::string(row->method) + "`" + (row->in_person ? " *" : ""), fields};
    for (std::string& cell : roles_of(*row)) cells.push_back(std::move(cell));
    lines.push_back(std::move(cells));
  }
  return testing::table_text(lines);
}

TEST(DocsAccess, TheTableOfCallsIsTheTableOfTheProgram) {
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Dataset::descriptor()->file(),
        v1::Model::descriptor()->file(), v1::ServerInfo::descriptor()->file(),
        v1::Person::descriptor()->file()}) {
    testing::expect_page_part(
        {"docs/access.md", "calls", file->service(0)->name(), "docs_access_test"},
        table_of(*file->service(0)));
  }
}

}  // namespace
}  // namespace trainyard::server
