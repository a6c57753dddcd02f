(* Runs the models on a history that it reads, one line after the other:

     keys <algorithm> <limit> <window> <parameter> <lease> ..   begins a history with these keys
     check <time> <cost> <most> ..                              a check with a charge of each key

   and answers each check with a line: 1 if it was admitted, then for each key the units that were spent,
   remaining, next_after, reset_after and retry_after (-1 if there is none). Steps is extracted from the
   proofs. This file only reads and prints. *)

open Steps

let rec positive n =
  if n = 1 then XH else if n land 1 = 1 then XI (positive (n lsr 1)) else XO (positive (n lsr 1))

let z n = if n = 0 then Z0 else if n > 0 then Zpos (positive n) else Zneg (positive (-n))

let rec of_positive = function
  | XH -> 1
  | XO p -> 2 * of_positive p
  | XI p -> (2 * of_positive p) + 1

let int = function Z0 -> 0 | Zpos p -> of_positive p | Zneg p -> -of_positive p

let algorithm name parameter =
  match name with
  | "log" -> Log
  | "buckets" -> Buckets (z parameter)
  | "counter" -> Counter
  | "bucket" -> Bucket (z parameter)
  | "window" -> Window
  | other -> failwith ("unknown algorithm: " ^ other)

let rec keys = function
  | [] -> []
  | name :: limit :: window :: parameter :: lease :: rest ->
      let number text = int_of_string text in
      let kind = algorithm name (number parameter) in
      let m = machine_of kind (z (number limit)) (z (number window)) (z (number lease)) in
      Key (m, empty m) :: keys rest
  | _ -> failwith "a key has five words"

let rec asks = function
  | [] -> []
  | cost :: most :: rest -> (z (int_of_string cost), z (int_of_string most)) :: asks rest
  | _ -> failwith "a charge has two words"

let answer before asked now =
  let is_admitted = admitted before asked now in
  let later = check before asked now in
  let line ((old, ask), Key (m, s)) =
    let units = if is_admitted then int (spends now (old, ask)) else 0 in
    let waiting = if units > 0 then Z0 else fst ask in
    let ((remaining, next), reset), retry = standing m s now waiting in
    let retry = match retry with Some wait -> int wait | None -> -1 in
    Printf.printf " %d %d %d %d %d" units (int remaining) (int next) (int reset) retry
  in
  print_string (if is_admitted then "1" else "0");
  List.iter line (List.combine (List.combine before asked) later);
  print_newline ();
  later

let rec run current =
  match input_line stdin with
  | exception End_of_file -> ()
  | line -> (
      match String.split_on_char ' ' line with
      | "keys" :: rest -> run (keys rest)
      | "check" :: now :: rest -> run (answer current (asks rest) (z (int_of_string now)))
      | _ -> failwith ("unknown line: " ^ line))

let () = run []
