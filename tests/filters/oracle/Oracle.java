// What Event Ruler says of filters. Each line of the input is a JSON object with "pattern" and "payloads", a list; each
// line of the output a JSON list of true and false, one for each payload, or a string: why the pattern was refused.
// Run as a single-file program, with Event Ruler's jars on the class path.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import software.amazon.event.ruler.Machine;

public class Oracle {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = mapper.readTree(line);
            Object answer;
            try {
                Machine machine = new Machine();
                machine.addRule("rule", mapper.writeValueAsString(asked.get("pattern")));
                List<Boolean> matched = new ArrayList<>();
                for (JsonNode payload : asked.get("payloads")) {
                    matched.add(!machine.rulesForJSONEvent(mapper.writeValueAsString(payload)).isEmpty());
                }
                answer = matched;
            } catch (Exception error) {
                answer = String.valueOf(error.getMessage());
            }
            output.println(mapper.writeValueAsString(answer));
        }
        output.flush();
    }
}
