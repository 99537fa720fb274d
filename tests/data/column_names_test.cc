// The tests fail if a column of identifiers is learned from because its name is not recognized, or
// if a measurement is left out because of its name.
#include "src/data/table/column_names.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

using Words = std::vector<std::string>;

TEST(ColumnNames, AreSplitIntoWords) {
  EXPECT_EQ(words_of_name("customer_no"), (Words{"customer", "no"}));
  EXPECT_EQ(words_of_name("PatientNr"), (Words{"patient", "nr"}));
  EXPECT_EQ(words_of_name("HTTPCode 2"), (Words{"http", "code", "2"}));
  EXPECT_EQ(words_of_name("GRID"), Words{"grid"});
  EXPECT_EQ(words_of_name("Größe.m2"), (Words{"größe", "m2"}));
  EXPECT_EQ(words_of_name(" . "), Words{});
}

TEST(ColumnNames, OfIdentifiers) {
  for (const char* name :
       {"id",       "ID",           "PassengerId", "orderID",      "order_id",
        "Order ID", "index",        "Unnamed: 0",  "Unnamed: 0.1", "uuid",
        "rownames", "row.names",    "caseid",      "townid",       "idno",
        "...1",     "household.id", "pid",         "Ketchup.hid",  "personPID"}) {
    EXPECT_TRUE(is_identifier_name(name)) << name;
    EXPECT_TRUE(may_name_rows(name)) << name;
  }
  for (const char* name :
       {"", "paid", "GRID", "idle", "width", "bid", "covid", "acid", "number", "code", "age"}) {
    EXPECT_FALSE(is_identifier_name(name)) << name;
  }
}

TEST(ColumnNames, UnderWhichNumbersThatDifferNameTheRows) {
  for (const char* name : {"customer_no", "PatientNr", "patnr", "obs", "case", "Subject",
                           "account_number", "case_code", "recnum"}) {
    EXPECT_TRUE(may_name_rows(name)) << name;
  }
  for (const char* name : {"number", "score", "rank", "price", "population", "zip_code", "year",
                           "x", "casino", "unit", "room_number"}) {
    EXPECT_FALSE(may_name_rows(name)) << name;
  }
}

TEST(ColumnNames, OfSubjectsAndTimes) {
  for (const char* name : {"subject", "Patient", "schoolid", "student_id"}) {
    EXPECT_TRUE(is_subject_name(name)) << name;
  }
  for (const char* name : {"subjective", "order", "product", "class", "age"}) {
    EXPECT_FALSE(is_subject_name(name)) << name;
  }
  for (const char* name : {"year", "Order Date", "day_of_week", "pickup_datetime", "Month"}) {
    EXPECT_TRUE(is_time_name(name)) << name;
  }
  for (const char* name : {"update", "mandate", "yearly_income", "holiday", "t"}) {
    EXPECT_FALSE(is_time_name(name)) << name;
  }
  for (const char* name : {"score", "Age", "test_score", "rank", "t", "day"}) {
    EXPECT_TRUE(may_count_up(name)) << name;
  }
  EXPECT_FALSE(may_count_up("n"));
}

}  // namespace
}  // namespace trainyard
