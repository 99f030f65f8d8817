// An English text, of a little more than 512 tokens in SmolLM2's vocabulary.
#pragma once

namespace sluice::test {

inline constexpr const char* kPassage =
    "The harbour of the little town lies open to the north, and for most of the winter nobody sails. The boats "
    "are pulled up on the gravel, their hulls are scraped and painted, and the fishermen sit in the back room of "
    "the bakery, where it is warm, and argue about the price of diesel. In March the ice on the river breaks. You "
    "can hear it from the church, a low sound like furniture being moved in another house, and on the next "
    "morning the children run down to the bridge before school to look at the brown water and the white slabs "
    "that turn slowly in it.\n\n"
    "My grandmother kept a notebook in which she wrote the day of the breaking of the ice, every year from 1951 "
    "until she died. There are fifty-eight entries. The earliest is the third of March and the latest the twenty- "
    "second of April; the average, as I worked out one rainy afternoon, is the second of April, but in the last "
    "twenty years it has moved forward by almost two weeks. She never said anything about that. She was not a "
    "person who drew conclusions. She simply wrote down what she saw, with a pencil that she sharpened with a "
    "kitchen knife, and beside the date she noted who had told her if she had not been there herself.\n\n"
    "When I studied statistics at the university I used her notebook for an exercise. The task was to fit a "
    "straight line to a series of measurements, to estimate the error of the slope, and to say whether the trend "
    "could be an accident. Most of my fellow students took the prices of shares or the results of football "
    "matches. The teacher, a quiet woman who had worked for the weather service, asked me where my numbers came "
    "from. I told her about the bridge, the church and the pencil. She looked at the table for a long time and "
    "then said that good data were rarer than good theories, and that I should take care of the notebook.\n\n"
    "So I made a copy. I typed the dates into a file, checked each of them twice, and put the book itself into a "
    "tin box that once held biscuits. Last spring I went back to the town, for the first time in six years, and "
    "stood on the bridge with my own daughter. The ice had already gone. An old man with a dog told us that it "
    "had broken on the ninth of March, early in the morning, and that hardly anybody had noticed. I thanked him, "
    "and in the evening, in the room under the roof where I had slept as a child, I opened the box, sharpened the "
    "pencil, and wrote it down.";

}  // namespace sluice::test
